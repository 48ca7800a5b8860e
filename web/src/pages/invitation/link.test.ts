import { expect, it } from "vitest";
import { invitationIn, linkOf } from "./link";

const SECRET = "0123456789abcdef".repeat(4);

it("reads from its own link whose invitation it is", () => {
  for (const [digits, user] of [["616e6e", "ann"], ["6a616e6520646f6540652e6f7267", "jane doe@e.org"], ["c39c2b23", "Ü+#"]] as const) {
    const token = `fdn-invite.${digits}.${SECRET}`;
    const link = linkOf("https://fdn.example.org", token);
    expect(link).toBe(`https://fdn.example.org/invitation#${token}`);
    expect(invitationIn(new URL(link).hash)).toEqual({ token, user });
  }
});

it("takes nothing else for an invitation", () => {
  const token = `fdn-invite.616e6e.${SECRET}`;
  for (const fragment of ["", "#", "#section", token.slice(0, -1), `${token}0`, token.replace("616e6e", "616e6"), token.replace("616e6e", ""), token.replace("invite", "join"), `${token}#`]) {
    expect(invitationIn(fragment)).toBeNull();
  }
});
