"""What a command shows: safe output, progress, whole files. Knows nothing of archives."""
