"""Tables of results for terminals, notebooks and Markdown."""
