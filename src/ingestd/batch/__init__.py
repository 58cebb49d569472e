"""A batch's life: accepted, loaded, proven, acted upon, done — and resumable after a crash between any two of these."""
