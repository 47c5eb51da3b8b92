"""Stand-ins for published data of open questions: drawn pages, in exactly the files that their publishers ship."""
