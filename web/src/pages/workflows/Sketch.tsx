import { layout, NODE_HEIGHT, NODE_WIDTH } from "./model/layout";
import type { Draft } from "./model/draft";

/** A workflow in a few strokes, for lists. The text beside it says the same. */
export function Sketch({ draft }: { draft: Draft }) {
  const places = layout(draft);
  const right = Math.max(...[...places.values()].map((place) => place.x)) + NODE_WIDTH;
  const below = Math.max(...[...places.values()].map((place) => place.y)) + NODE_HEIGHT;
  const centre = (name: string) => {
    const place = places.get(name) ?? { x: 0, y: 0 };
    return { x: place.x + NODE_WIDTH / 2, y: place.y + NODE_HEIGHT / 2 };
  };
  return (
    <svg viewBox={`-12 -12 ${right + 24} ${below + 24}`} width={112} height={30} preserveAspectRatio="xMinYMid meet" aria-hidden="true">
      {draft.stages.flatMap((stage) => stage.needs.filter((need) => places.has(need.stage)).map((need) => {
        const [from, to] = [centre(need.stage), centre(stage.name)];
        return <line key={`${need.stage} ${stage.name}`} x1={from.x} y1={from.y} x2={to.x} y2={to.y} stroke="var(--line-strong)" strokeWidth={12} />;
      }))}
      {[...places].map(([name, place]) => (
        <rect key={name} x={place.x} y={place.y} width={NODE_WIDTH} height={NODE_HEIGHT} rx={24} fill="var(--accent-soft)" stroke="var(--accent)" strokeWidth={12} />
      ))}
    </svg>
  );
}
