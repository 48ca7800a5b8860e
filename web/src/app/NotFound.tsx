import { Link } from "@tanstack/react-router";
import { Card } from "@/components/Card";
import { Empty } from "@/components/States";
import { PageHead } from "@/components/Page";

export function NotFound() {
  return (
    <>
      <PageHead title="Page not found" />
      <Card>
        <Empty title="There is no page at this address" icon="search" action={<Link className="button primary" to="/">Go to the overview</Link>}>
          The address may be mistyped, or what it named was deleted.
        </Empty>
      </Card>
    </>
  );
}
