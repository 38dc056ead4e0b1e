"""Results on disk: folders, files, digests and locks."""
