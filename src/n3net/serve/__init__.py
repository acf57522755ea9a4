"""The page: a server for the browser of this machine's own user, a thin door to what the commands do (extra 'web')."""
