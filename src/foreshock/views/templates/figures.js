"use strict";
// Draws every figure when it becomes visible, in the colours of the page, and again when these change.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const config = {
    displaylogo: false,
    responsive: true,
    displayModeBar: coarse ? false : "hover",
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  };

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    return { ink: read("--ink"), grid: read("--grid"), page: read("--page"), font: read("--sans") };
  }

  function themed(layout) {
    const { ink, grid, page, font } = colours();
    const result = { ...layout };
    result.font = { ...layout.font, color: ink, family: font };
    result.hoverlabel = { bgcolor: page, bordercolor: grid, font: { color: ink, family: font } };
    result.modebar = { bgcolor: "rgba(0,0,0,0)", color: grid, activecolor: ink };
    if (coarse) result.dragmode = false; // a finger on a figure scrolls the page
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))]);
    for (const axis of axes) {
      const own = layout[axis] || {};
      const title = { ...own.title, font: { size: 12.5 } };
      result[axis] = { ...own, title, gridcolor: grid, linecolor: grid, tickcolor: grid };
    }
    return result;
  }

  function draw(element) {
    if (element.offsetParent === null) return; // inside a folded section
    const source = element.querySelector("script");
    element.figure = element.figure || JSON.parse(source.textContent);
    Plotly.react(element, element.figure.data, themed(element.figure.layout), config);
  }

  const elements = Array.from(document.querySelectorAll(".plot"));
  const drawAll = () => elements.forEach(draw);
  document.querySelectorAll("details").forEach((fold) => fold.addEventListener("toggle", drawAll));
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", drawAll);
  window.addEventListener("afterprint", drawAll);
  drawAll();
})();
