"""Is what is audited the model itself? ``sightline doctor``, and the demo that ships with the package."""
