"""Who runs a pipeline, and the signs of life by which others see it."""
