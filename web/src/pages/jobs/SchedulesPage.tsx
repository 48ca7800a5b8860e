import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Ago, Badge, Button, Card, Check, Confirm, Dialog, Empty, ErrorNotice, Loaded, matches, SearchBox, SelectField, Table, TextArea, TextField, useToast, useToastError, type Column } from "@/components";
import { AppChoice, JobsFrame } from "./parts";
import { appsQuery, schedulesQuery } from "./queries";
import { PRIORITIES } from "./SubmitDialog";
import styles from "./Jobs.module.css";

type Schedule = Schemas["ScheduleInfo"];

/** `/jobs/schedules` */
export function SchedulesPage() {
  const tenant = useTenant();
  const may = useMay("run-jobs", tenant);
  const apps = useQuery(appsQuery(tenant));
  const names = apps.data?.map((app) => app.app).sort() ?? [];
  const [app, setApp] = useParam("app");
  const [filter] = useParam("q");
  const schedules = useQuery(schedulesQuery(tenant, app));
  const [editing, edit] = useState<Schedule | "new" | null>(null);
  const add = may && names.length > 0 ? <Button kind="primary" icon="plus" onClick={() => edit("new")}>New schedule</Button> : undefined;
  return (
    <JobsFrame title="Schedules" lead="Jobs that are submitted by themselves, each moment once. Times of the expressions are in UTC." actions={add}>
      <Card flush>
        <Loaded query={apps}>{() => <Loaded query={schedules} empty={<Empty title="No schedule yet" icon="clock" action={add}>A schedule submits a job at every moment that its expression names, such as <code>0 3 * * *</code> for three o'clock each night.</Empty>}>
          {(rows) => {
            const found = rows.filter((row) => matches(filter, row.name, row.app, row.schedule.cron));
            return (
              <>
                <div className="toolbar"><SearchBox label="Filter by name, app or expression" found={found.length} /><AppChoice apps={names} value={app} onChange={setApp} /></div>
                {found.length === 0 ? <Empty title="No schedule matches" icon="filter">Take a word out of the filter, or choose another app.</Empty>
                  : <Table label="Schedules" rows={found} columns={columns(may, edit)} rowKey={(row) => `${row.app}/${row.name}`} defaultSort="next" />}
              </>
            );
          }}
        </Loaded>}</Loaded>
      </Card>
      {editing !== null && <EditDialog apps={names} schedule={editing === "new" ? undefined : editing} onClose={() => edit(null)} />}
    </JobsFrame>
  );
}

function columns(may: boolean, edit: (schedule: Schedule) => void): readonly Column<Schedule>[] {
  return [
    { id: "name", header: "Schedule", cell: (row) => (may ? <button type="button" className={styles.open} onClick={() => edit(row)}>{row.name}</button> : <span className="strong">{row.name}</span>), sort: (row) => row.name },
    { id: "app", header: "App", cell: (row) => <Link to="/jobs" search={{ app: row.app }}>{row.app}</Link>, sort: (row) => row.app },
    { id: "cron", header: "Expression", cell: (row) => <span className="mono">{row.schedule.cron}</span>, sort: (row) => row.schedule.cron, from: 480 },
    { id: "state", header: "State", cell: (row) => (row.schedule.paused === true ? <Badge tone="warn">paused</Badge> : <Badge tone="good">active</Badge>), sort: (row) => row.schedule.paused === true, width: "6rem", from: 420 },
    { id: "next", header: "Next", cell: (row) => <Ago at={row.next_at} none="–" />, sort: (row) => row.next_at ?? null, width: "6.5rem", from: 620 },
    { id: "last", header: "Last", cell: (row) => (row.last_job == null ? <Ago at={row.last_at} /> : <Link to={`/jobs/${row.last_job}`}><Ago at={row.last_at} /></Link>), sort: (row) => row.last_at ?? null, width: "6.5rem", from: 720 },
    { id: "by", header: "Set by", cell: (row) => <span className="muted">{row.updated_by}</span>, sort: (row) => row.updated_by, from: 920 },
    ...(may ? [{ id: "act", header: "", cell: (row: Schedule) => <RowActions row={row} edit={edit} />, width: "13.5rem", number: true }] : []),
  ];
}

function put(app: string, name: string, schedule: Schemas["PutSchedule"]) {
  return body(api.PUT("/v1/apps/{app}/schedules/{name}", { params: { path: { app, name } }, body: schedule }));
}

function RowActions({ row, edit }: { row: Schedule; edit: (schedule: Schedule) => void }) {
  const { app, name, schedule } = row;
  const [asked, ask] = useState(false);
  const queries = useQueryClient();
  const sayError = useToastError();
  const refresh = () => queries.invalidateQueries({ queryKey: ["jobs", "schedules"] });
  const pause = useMutation({
    mutationFn: () => put(app, name, { ...schedule, paused: schedule.paused !== true }),
    onSuccess: refresh,
    onError: sayError,
  });
  return (
    <span className="row-tight">
      <Button small busy={pause.isPending} onClick={() => pause.mutate()} aria-label={`${schedule.paused === true ? "Resume" : "Pause"} ${name}`}>{schedule.paused === true ? "Resume" : "Pause"}</Button>
      <Button small onClick={() => edit(row)} aria-label={`Change ${name}`}>Change</Button>
      <Button small kind="danger" onClick={() => ask(true)} aria-label={`Remove ${name}`}>Remove</Button>
      {asked && <Remove row={row} onClose={() => ask(false)} />}
    </span>
  );
}

function Remove({ row, onClose }: { row: Schedule; onClose: () => void }) {
  const { app, name, schedule } = row;
  const queries = useQueryClient();
  const say = useToast();
  const refresh = () => queries.invalidateQueries({ queryKey: ["jobs", "schedules"] });
  const remove = async () => {
    await api.DELETE("/v1/apps/{app}/schedules/{name}", { params: { path: { app, name } } });
    say({ text: `Schedule ${name} was removed`, undo: async () => { await put(app, name, schedule); await refresh(); } });
    await refresh();
  };
  return (
    <Confirm title={`Remove schedule ${name}?`} action="Remove it" onConfirm={remove} onClose={onClose}>
      <p>It submits no more jobs for {app}. Jobs that it submitted stay.</p>
    </Confirm>
  );
}

function EditDialog({ apps, schedule, onClose }: { apps: readonly string[]; schedule: Schedule | undefined; onClose: () => void }) {
  const before = schedule?.schedule;
  const [app, setApp] = useState(schedule?.app ?? apps[0] ?? "");
  const [name, setName] = useState(schedule?.name ?? "");
  const [cron, setCron] = useState(before?.cron ?? "0 3 * * *");
  const [input, setInput] = useState(before?.input ?? "");
  const [target, setTarget] = useState(before?.target ?? "");
  const [priority, setPriority] = useState(String(before?.priority ?? 5));
  const [paused, setPaused] = useState(before?.paused === true);
  const [removing, remove] = useState(false);
  const queries = useQueryClient();
  const say = useToast();
  const fields = cron.trim().split(/\s+/).length;
  const save = useMutation({
    mutationFn: () => put(app, name, { ...before, cron: cron.trim(), input, priority: Number(priority), paused, target: target === "" ? null : target }),
    onSuccess: async (saved) => {
      say(`Schedule ${saved.name} is set`);
      await queries.invalidateQueries({ queryKey: ["jobs", "schedules"] });
      onClose();
    },
  });
  if (removing && schedule !== undefined) return <Remove row={schedule} onClose={onClose} />;
  const foot = <>{schedule !== undefined && <Button kind="danger" onClick={() => remove(true)}>Remove</Button>}<Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={save.isPending} disabled={app === "" || name === "" || fields !== 5}>Set the schedule</Button></>;
  return (
    <Dialog wide title={schedule === undefined ? "New schedule" : `Schedule ${schedule.name}`} onClose={onClose} foot={foot} onSubmit={() => save.mutate()}>
      <div className="cards">
        <SelectField label="App" value={app} disabled={schedule !== undefined} onChange={(event) => setApp(event.target.value)} options={apps.map((value) => ({ value, label: value }))} />
        <TextField label="Name" value={name} disabled={schedule !== undefined} onChange={(event) => setName(event.target.value)} placeholder="nightly" autoComplete="off" spellCheck={false} />
      </div>
      <TextField label="Expression" value={cron} onChange={(event) => setCron(event.target.value)} className="mono" spellCheck={false} hint="Minute, hour, day, month, weekday, in UTC. Every five minutes: */5 * * * *"
        error={fields === 5 ? undefined : `Five fields; these are ${fields}.`} />
      <TextArea label="Input of each job" rows={3} value={input} onChange={(event) => setInput(event.target.value)} className="mono" spellCheck={false} />
      <div className="cards">
        <TextField label="Path and query" value={target} onChange={(event) => setTarget(event.target.value)} placeholder="/" spellCheck={false} />
        <SelectField label="Priority" value={priority} onChange={(event) => setPriority(event.target.value)} options={PRIORITIES} />
      </div>
      <Check label="Paused" hint="It stays, and submits nothing for now." checked={paused} onChange={(event) => setPaused(event.target.checked)} />
      <ErrorNotice error={save.error} />
    </Dialog>
  );
}
