import { useEffect, useRef } from "react";

/** A button that saves bytes as a file. */
export function SaveLink({ bytes, type, name, label }: { bytes: BlobPart; type: string; name: string; label: string }) {
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([bytes], { type }));
    if (link.current !== null) link.current.href = made;
    return () => URL.revokeObjectURL(made);
  }, [bytes, type]);
  return <a className="button" ref={link} href="#save" download={name}>{label}</a>;
}
