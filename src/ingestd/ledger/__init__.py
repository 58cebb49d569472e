"""Where is my file? What was loaded, and why the rest was not."""
