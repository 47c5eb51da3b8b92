"""One module per command group; heavy imports happen inside the commands."""
