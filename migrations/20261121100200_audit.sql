-- Who did it by which token, in which tenant, from where, in which request. The triggers that refuse changes of rows differ between the
-- databases; the controller makes them after the migrations (store/dialect.rs).
ALTER TABLE audit ADD COLUMN tenant TEXT;
ALTER TABLE audit ADD COLUMN token TEXT;
ALTER TABLE audit ADD COLUMN address TEXT;
ALTER TABLE audit ADD COLUMN request TEXT;
CREATE INDEX audit_by_tenant ON audit (tenant, at);
