"""Where selector-visible boxes come from: the annotation, a noise model on top of it, or a text detector."""
