"""The ports of `ingestd.ports` on Google's client libraries. Nothing else in the daemon imports `google.*`."""
