"""Small samples: coverage and sharpness at the sizes where people start."""
