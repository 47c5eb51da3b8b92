"""Probe sets whose images were changed on purpose: image-free controls and text replacement."""
