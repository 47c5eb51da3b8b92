"""What every page that Sightline serves has in common: who may come in, what pages may do, look, start, stop."""
