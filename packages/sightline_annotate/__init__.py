"""People in the loop: campaigns, a journal of what annotators said, agreement, adjudication, signed decisions."""
