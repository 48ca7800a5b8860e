import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body, setSession } from "@/api/client";
import { loginQuery, sessionQuery } from "@/api/session";
import { Logo } from "@/app/Logo";
import { useParam } from "@/app/search";
import { ThemeSwitch } from "@/app/Shell";
import { Button, Card, ErrorNotice, PageHead, TextField } from "@/components";
import { inside } from "./target";

export function SignInPage() {
  const [to] = useParam("to");
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [user, setUser] = useState("admin");
  const [password, setPassword] = useState("");
  const enter = useMutation({
    mutationFn: () => body(api.POST("/v1/session", { body: { user, password } })),
    onSuccess: async (who) => {
      setSession(who);
      queries.clear();
      queries.setQueryData(sessionQuery.queryKey, who);
      await navigate({ href: inside(to) });
    },
  });
  return (
    <main className="gate">
      <div className="gate-card stack">
        <Logo size={40} />
        <PageHead title="Sign in" lead="to the function delivery network" />
        <Card>
          <form className="stack" onSubmit={(event) => { event.preventDefault(); enter.mutate(); }}>
            <TextField label="User" name="user" autoComplete="username" autoCapitalize="none" spellCheck={false} required value={user} onChange={(event) => setUser(event.target.value)} />
            <TextField label="Password" name="password" type="password" autoComplete="current-password" autoFocus required value={password} onChange={(event) => setPassword(event.target.value)} />
            <ErrorNotice error={enter.error} />
            <Button type="submit" kind="primary" busy={enter.isPending}>Sign in</Button>
          </form>
        </Card>
        <IdentityProvider />
        <details className="small muted">
          <summary>The first time?</summary>
          <p>When the network is started for the first time, <code>fdn up</code> (or the controller) makes the user <code>admin</code> and prints its password once, in the line that begins with “console”. It is not kept anywhere; whoever lost it sets another one with <code>fdn user password admin</code> from where the command line is signed in.</p>
        </details>
        <div><ThemeSwitch /></div>
      </div>
    </main>
  );
}

/** The way through an identity provider, if the network has one. */
function IdentityProvider() {
  const info = useQuery(loginQuery);
  if (info.data?.oidc !== true) return null;
  return <a className="button" href="/v1/oidc/login">Sign in with your organisation</a>;
}
