"""From a file that is wanted to its batch: alone, together with others in a window, or with its success file."""
