import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "@/api/client";
import { useSession } from "@/api/session";
import { Button, Card, ErrorNotice, TextField, useToast } from "@/components";

export function PasswordCard() {
  const who = useSession();
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const change = useMutation({
    mutationFn: () => body(api.POST("/v1/password", { body: { current, password } })),
    onSuccess: async () => {
      for (const clear of [setCurrent, setPassword, setAgain]) clear("");
      await queries.invalidateQueries({ queryKey: ["sessions"] });
      say("The password is changed; your other sessions have ended");
    },
  });
  const differs = again !== "" && again !== password ? "This is not the same." : null;
  return (
    <Card title="Password" foot="A new password ends all your other sessions.">
      <form className="stack" onSubmit={(event) => { event.preventDefault(); if (again === password) change.mutate(); }}>
        <input type="text" name="user" autoComplete="username" value={who.user} readOnly hidden />
        <TextField label="Present password" type="password" autoComplete="current-password" required value={current} onChange={(event) => setCurrent(event.target.value)} />
        <TextField label="New password" type="password" autoComplete="new-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
        <TextField label="New password again" type="password" autoComplete="new-password" required value={again} error={differs} onChange={(event) => setAgain(event.target.value)} />
        <ErrorNotice error={change.error} />
        <div><Button type="submit" kind="primary" busy={change.isPending} disabled={current === "" || password === "" || again !== password}>Change the password</Button></div>
      </form>
    </Card>
  );
}
