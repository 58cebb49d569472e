"""Value objects and the error taxonomy. No I/O and no google.* imports live here."""
