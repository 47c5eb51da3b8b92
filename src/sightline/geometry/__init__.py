"""Where visual tokens come from on the image plane, and how much of the evidence survives in a selection."""
