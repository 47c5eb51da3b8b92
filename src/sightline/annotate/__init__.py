"""People in the loop: tasks for annotators, their journal, agreement and decisions."""
