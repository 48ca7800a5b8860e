-- What is kept of a job's attempts, as JSON (core's `job::attempt`), and lists of jobs over all apps of a tenant.
ALTER TABLE jobs ADD COLUMN history TEXT;
CREATE INDEX jobs_by_tenant ON jobs (tenant, id);
CREATE INDEX jobs_by_tenant_state ON jobs (tenant, state, id);
CREATE INDEX job_schedules_by_tenant ON job_schedules (tenant, app, name);
