"""The same definitions written a second time, in another way: a slip in one shows, a misread rule need not."""
