"""A probe under an arm becomes an answer: select, materialise, batch, score."""
