/** The page that an invitation's link opens: whoever was invited chooses a password, and is signed in. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useLocation, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import { ApiError } from "@/api/problem";
import { Logo } from "@/app/Logo";
import { ThemeSwitch } from "@/app/Shell";
import { Button, Card, Empty, ErrorNotice, PageHead, sentence, TextField } from "@/components";
import { invitationIn, type Invitation } from "./link";

/** `/invitation#TOKEN` */
export function InvitationPage() {
  const fragment = useLocation({ select: (location) => location.hash });
  const invitation = invitationIn(fragment);
  return (
    <main className="gate">
      <div className="gate-card stack">
        <Logo size={40} />
        {invitation === null ? <Cut /> : <Choose key={fragment} invitation={invitation} />}
        <div><ThemeSwitch /></div>
      </div>
    </main>
  );
}

function Cut() {
  return (
    <>
      <PageHead title="Invitation" lead="to the function delivery network" />
      <Card><Empty title="This link is not whole" icon="lock" action={<SignIn />}>Open it again as it was sent to you, to its last character.</Empty></Card>
    </>
  );
}

/** Codes of an invitation that nobody can accept any more. */
const ENDED = new Set(["FDN-2042", "FDN-2043"]);

function Choose({ invitation: { token, user } }: { invitation: Invitation }) {
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const navigate = useNavigate();
  const queries = useQueryClient();
  const accept = useMutation({
    mutationFn: () => body(api.POST("/v1/invitations/accept", { body: { token, password, kind: "cookie" } })),
    onSuccess: async () => {
      queries.clear();
      // The link is worth nothing any more, and does not stay in the history.
      await navigate({ href: "/", replace: true });
    },
  });
  const differs = again !== "" && again !== password ? "This is not the same." : null;
  const { error } = accept;
  if (error instanceof ApiError && ENDED.has(error.code)) return <Ended error={error} />;
  return (
    <>
      <PageHead title={`Welcome, ${user}`} lead="Choose a password for the function delivery network." documentTitle="Invitation" />
      <Card foot="Nobody else gets to know it. The invitation is good once.">
        <form className="stack" onSubmit={(event) => { event.preventDefault(); if (again === password) accept.mutate(); }}>
          <input type="text" name="user" autoComplete="username" value={user} readOnly hidden />
          <TextField label="Password" name="password" type="password" autoComplete="new-password" autoFocus required value={password} onChange={(event) => setPassword(event.target.value)} />
          <TextField label="Password again" name="again" type="password" autoComplete="new-password" required value={again} error={differs} onChange={(event) => setAgain(event.target.value)} />
          <ErrorNotice error={error} />
          <Button type="submit" kind="primary" busy={accept.isPending} disabled={password === "" || again !== password}>Choose it and sign in</Button>
        </form>
      </Card>
    </>
  );
}

function Ended({ error }: { error: ApiError }) {
  return (
    <>
      <PageHead title="Invitation" lead="to the function delivery network" />
      <Card>
        <div role="alert"><Empty title="The invitation has ended" icon="lock" action={<SignIn />}>{sentence(error.message)}</Empty></div>
      </Card>
    </>
  );
}

function SignIn() {
  return <Link to="/sign-in" className="button">Sign in with a password</Link>;
}
