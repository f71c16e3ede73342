"""The platforms, one module each; ``registry`` knows them all."""
