-- Nodes hand over sums of calls, not calls. A batch's id is remembered for a time, and that of each node's newest batch for as long as no newer one comes:
-- a node takes its next segment only when it has the receipt of the one before, so no other can come again.
CREATE INDEX usage_batches_by_node ON usage_batches (node, received_at);
CREATE INDEX usage_batches_newest ON usage_batches (node, id);

-- Sums of hours are removed after a time; bills are made of those of days.
CREATE INDEX usage_hours_by_time ON usage_hours (at);
