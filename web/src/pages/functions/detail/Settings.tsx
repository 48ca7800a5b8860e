import { Loaded } from "@/components";
import { ObjectiveCard } from "./ObjectiveCard";
import { SecretsCard } from "./SecretsCard";
import { LimitsCard, VariablesCard } from "./VariablesCard";
import { useApp } from "./useApp";

/** Configuration: variables and limits of the current version, secrets, and what new versions must keep to. */
export function Settings() {
  const app = useApp();
  return (
    <Loaded query={app}>
      {({ value, tag }) => (
        <div className="halves">
          <div className="stack">
            <VariablesCard key={value.app} app={value} tag={tag} />
            <SecretsCard app={value} />
          </div>
          <div className="stack">
            <ObjectiveCard app={value} />
            <LimitsCard app={value} />
          </div>
        </div>
      )}
    </Loaded>
  );
}
