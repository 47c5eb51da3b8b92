"""Where things lie: paths on this machine, and URLs of object stores, under the same few verbs."""
