"""People in the loop: tasks for annotators, a journal of what they said, agreement, adjudication, signed decisions."""
