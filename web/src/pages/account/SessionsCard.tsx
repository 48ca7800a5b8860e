import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, body, type Schemas } from "@/api/client";
import { Ago, Badge, Button, Card, Loaded, Table, useToast, useToastError, type Column } from "@/components";

type Session = Schemas["SessionInfo"];

export function SessionsCard() {
  const sessions = useQuery({ queryKey: ["sessions"], queryFn: () => body(api.GET("/v1/sessions")) });
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const end = useMutation({
    mutationFn: (session: string) => body(api.DELETE("/v1/sessions/{session}", { params: { path: { session } } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["sessions"] });
      say("The session has ended");
    },
    onError: failed,
  });
  const columns: Column<Session>[] = [
    { id: "kind", header: "Where", width: "minmax(9rem, 1fr)", cell: (each) => <span className="row-tight"><b>{each.kind === "cookie" ? "Browser" : "Command line"}</b>{each.current && <Badge tone="accent" dot>this one</Badge>}</span>, sort: (each) => each.kind },
    { id: "address", header: "Address", cell: (each) => <span className="mono">{each.address ?? "–"}</span>, sort: (each) => each.address, from: 520 },
    { id: "used", header: "Last used", width: "7rem", cell: (each) => <Ago at={each.last_used_at} />, sort: (each) => each.last_used_at },
    { id: "begun", header: "Begun", width: "7rem", cell: (each) => <Ago at={each.created_at} />, sort: (each) => each.created_at, from: 640 },
    { id: "ends", header: "Ends", width: "7rem", cell: (each) => <Ago at={each.expires_at} />, sort: (each) => each.expires_at, from: 760 },
    { id: "act", header: "", width: "4.5rem", number: true, cell: (each) => (each.current ? null : <Button small kind="danger" busy={end.isPending && end.variables === each.id} onClick={() => end.mutate(each.id)}>End</Button>) },
  ];
  return (
    <Card title="Sessions" flush>
      <Loaded query={sessions}>{(rows) => <Table label="Sessions" rows={rows} columns={columns} rowKey={(each) => each.id} sortParam="sessions" />}</Loaded>
    </Card>
  );
}
