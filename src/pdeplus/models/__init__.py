"""Networks, one file a name; each file has one `build(*, classes, channels, …)`."""
