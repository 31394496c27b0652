"""Store: what all journals on disk and on servers share."""
