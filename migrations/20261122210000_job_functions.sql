-- The functions that a running job's attempt calls, as ` one two `: jobs of several apps that call one function are counted together.
ALTER TABLE jobs ADD COLUMN functions TEXT;
