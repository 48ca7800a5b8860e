import { useEffect, useRef } from "react";

/** A button that saves octets as a file. */
export function SaveLink({ octets, type, name, label }: { octets: BlobPart; type: string; name: string; label: string }) {
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([octets], { type }));
    if (link.current !== null) link.current.href = made;
    return () => URL.revokeObjectURL(made);
  }, [octets, type]);
  return <a className="button" ref={link} href="#save" download={name}>{label}</a>;
}
