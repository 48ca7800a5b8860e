import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { Badge, Button, Card, Confirm, Dialog, Empty, ErrorNotice, Loaded, TextField, useToast } from "@/components";
import { compact, count } from "@/format";
import { METER_NAMES, METERS, parseMoney } from "./meters";
import { BillingFrame } from "./parts";
import { pricesQuery } from "./queries";

type PriceList = Schemas["PriceList"];

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

/** When a list counts, as of a day. Days are texts that sort as they follow each other. */
export function phaseOf(list: PriceList, day: string): "over" | "valid" | "to come" {
  if (list.from > day) return "to come";
  return list.to != null && list.to <= day ? "over" : "valid";
}

/** A price without the zeros behind its cents. */
const short = (price: string) => price.replace(/(\.\d\d\d*?)0+$/, "$1");

/** `/billing/prices` */
export function PricesPage() {
  const admin = useMay("administer");
  const prices = useQuery(pricesQuery);
  const [adding, add] = useState(false);
  const [removing, remove] = useState<PriceList | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const [day] = useState(today);
  const action = admin ? <Button kind="primary" icon="plus" onClick={() => add(true)}>New price list</Button> : undefined;
  const latest = prices.data?.at(-1);
  return (
    <BillingFrame title="Prices" lead="What everything costs. One list is valid at a time." actions={action} open>
      <Loaded query={prices} empty={<Card><Empty title="No price list" icon="billing" action={action}>Without a list everything costs nothing.</Empty></Card>}>
        {(rows) => (
          <div className="stack">
            {[...rows].sort((a, b) => b.from.localeCompare(a.from)).map((list) => <List key={list.name} list={list} phase={phaseOf(list, day)} onRemove={admin ? () => remove(list) : undefined} />)}
          </div>
        )}
      </Loaded>
      {adding && <NewList like={latest} onClose={() => add(false)} />}
      {removing !== null && (
        <Confirm title={`Remove price list ${removing.name}?`} action="Remove it" word={removing.name} onClose={() => remove(null)} onConfirm={async () => {
          await api.DELETE("/v1/billing/prices/{name}", { params: { path: { name: removing.name } } });
          say({ text: `Price list ${removing.name} was removed`, undo: async () => {
            await body(api.POST("/v1/billing/prices", { body: removing }));
            await queries.invalidateQueries({ queryKey: ["billing"] });
          } });
          await queries.invalidateQueries({ queryKey: ["billing"] });
        }}>
          <p>It would begin on {removing.from}. The list before it then goes on, unless it has an end of its own.</p>
        </Confirm>
      )}
    </BillingFrame>
  );
}

function List({ list, phase, onRemove }: { list: PriceList; phase: ReturnType<typeof phaseOf>; onRemove: (() => void) | undefined }) {
  return (
    <Card flush title={<span className="row-tight">{list.name} <Badge tone={phase === "valid" ? "good" : phase === "to come" ? "info" : "neutral"}>{phase}</Badge></span>}
      actions={<><span className="muted small">{list.from}{list.to == null ? ", until another one begins" : ` to ${list.to}`} (UTC), {list.currency}</span>{onRemove !== undefined && phase === "to come" && <Button small kind="danger" aria-label={`Remove price list ${list.name}`} onClick={onRemove}>Remove</Button>}</>}>
      <div className="scroll-x" tabIndex={0} role="region" aria-label={`Prices of ${list.name}`}>
        <table className="plain-table fit">
          <thead><tr><th>Meter</th><th className="num">Price</th><th>For each</th><th>Free each month</th></tr></thead>
          <tbody>
            {METER_NAMES.map((meter) => {
              const price = list.prices[meter];
              const free = list.free?.[meter];
              const { name, unit, one } = METERS[meter];
              return (
                <tr key={meter}>
                  <td className="strong nowrap">{name}</td>
                  <td className="num nowrap">{price === undefined ? <span className="faint">free</span> : `${short(price.price)} ${list.currency}`}</td>
                  <td className="nowrap">{price === undefined ? "" : (price.per ?? 1) === 1 ? one.replace(/^a /, "") : <span title={count(price.per ?? 1)}>{compact(price.per ?? 1)} {unit}{unit === "call" ? "s" : ""}</span>}</td>
                  <td className="nowrap">{free === undefined ? <span className="faint">none</span> : `${count(free)} ${unit}${unit === "call" && free !== 1 ? "s" : ""}`}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

interface Fields {
  price: string;
  per: string;
  free: string;
}

function fieldsOf(list: PriceList | undefined): Record<Schemas["Meter"], Fields> {
  const entries = METER_NAMES.map((meter) => {
    const price = list?.prices[meter];
    return [meter, { price: price === undefined ? "" : short(price.price), per: String(price?.per ?? (meter === "invocations" ? 1_000_000 : 1)), free: String(list?.free?.[meter] ?? "") }] as const;
  });
  return Object.fromEntries(entries) as Record<Schemas["Meter"], Fields>;
}

const whole = (text: string) => /^\d{1,15}$/.test(text);

function NewList({ like, onClose }: { like: PriceList | undefined; onClose: () => void }) {
  const [name, setName] = useState("");
  const [from, setFrom] = useState(() => new Date(Date.now() + 86_400_000).toISOString().slice(0, 10));
  const [to, setTo] = useState("");
  const [currency, setCurrency] = useState(like?.currency ?? "EUR");
  const [fields, setFields] = useState(() => fieldsOf(like));
  const queries = useQueryClient();
  const say = useToast();
  const change = (meter: Schemas["Meter"], key: keyof Fields, value: string) => setFields((now) => ({ ...now, [meter]: { ...now[meter], [key]: value } }));
  const wrong = METER_NAMES.filter((meter) => {
    const { price, per, free } = fields[meter];
    return (price !== "" && (parseMoney(price) === null || !whole(per) || Number(per) < 1)) || (free !== "" && !whole(free));
  });
  const apply = useMutation({
    mutationFn: () => body(api.POST("/v1/billing/prices", { body: {
      name, currency, from, ...(to === "" ? {} : { to }),
      prices: Object.fromEntries(METER_NAMES.filter((meter) => fields[meter].price !== "").map((meter) => [meter, { price: fields[meter].price, per: Number(fields[meter].per) }])),
      free: Object.fromEntries(METER_NAMES.filter((meter) => fields[meter].free !== "").map((meter) => [meter, Number(fields[meter].free)])),
    } })),
    onSuccess: async (made) => {
      say(`Price list ${made.name} is valid from ${made.from}`);
      await queries.invalidateQueries({ queryKey: ["billing"] });
      onClose();
    },
  });
  const ready = name !== "" && from !== "" && currency.length === 3 && wrong.length === 0;
  return (
    <Dialog wide title="New price list" onClose={onClose} onSubmit={() => apply.mutate()}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={apply.isPending} disabled={!ready}>Add the list</Button></>}>
      <div className="cards">
        <TextField label="Name" value={name} onChange={(event) => setName(event.target.value)} placeholder={from.slice(0, 7)} autoComplete="off" spellCheck={false} />
        <TextField label="Currency" value={currency} onChange={(event) => setCurrency(event.target.value.toUpperCase())} maxLength={3} />
        <TextField label="First day (UTC)" type="date" value={from} onChange={(event) => setFrom(event.target.value)} />
        <TextField label="Day after the last one" type="date" value={to} onChange={(event) => setTo(event.target.value)} hint="Empty: until another list begins." />
      </div>
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Prices">
        <table className="plain-table">
          <thead><tr><th>Meter</th><th>Price</th><th>for so many</th><th>Unit</th><th>Free each month</th></tr></thead>
          <tbody>
            {METER_NAMES.map((meter) => (
              <tr key={meter}>
                <td className="strong">{METERS[meter].name}</td>
                {(["price", "per"] as const).map((key) => <td key={key}><input className="input" aria-label={`${METERS[meter].name}: ${key === "price" ? "price" : "for so many units"}`} inputMode="decimal" value={fields[meter][key]} placeholder={key === "price" ? "nothing" : "1"} aria-invalid={wrong.includes(meter) || undefined} onChange={(event) => change(meter, key, event.target.value)} /></td>)}
                <td className="nowrap muted">{METERS[meter].unit}</td>
                <td><input className="input" aria-label={`${METERS[meter].name}: free each month`} inputMode="numeric" value={fields[meter].free} placeholder="none" onChange={(event) => change(meter, "free", event.target.value)} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {wrong.length > 0 && <p className="bad small" role="alert">{wrong.map((meter) => METERS[meter].name).join(", ")}: a price is a decimal number with six decimals at most, for a whole number of units; what is free is a whole number.</p>}
      <ErrorNotice error={apply.error} />
    </Dialog>
  );
}
