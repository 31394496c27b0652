"""HTTP: connections to providers: send, receive, fail and wait."""
