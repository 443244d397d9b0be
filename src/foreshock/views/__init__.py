"""Views: they draw a diagnosis and the run behind it, for a terminal or as one offline HTML file, and judge nothing."""
