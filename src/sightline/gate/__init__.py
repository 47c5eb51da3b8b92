"""Rules in a language of their own (``rules``), decided on rows by the bounds of intervals (``decisions``)."""
