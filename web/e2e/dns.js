// Asks the network's DNS as a client somewhere else: a query that tells the client's subnet (RFC 7871), as resolvers send it.
import { createSocket } from "node:dgram";

function query(name, [address, length]) {
  const bytes = address.split(".").map(Number).slice(0, Math.ceil(length / 8));
  const labels = name.split(".").flatMap((label) => [label.length, ...Buffer.from(label)]);
  const subnet = [0, 1, length, 0, ...bytes];
  return Buffer.from([
    // An id, a query that asks for no recursion, one question and one additional record.
    Math.floor(Math.random() * 256), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1,
    ...labels, 0, 0, 1, 0, 1,
    // EDNS: the root, type OPT, 1232 bytes, and the option of the subnet.
    0, 0, 41, 4, 208, 0, 0, 0, 0, 0, subnet.length + 4, 0, 8, 0, subnet.length, ...subnet,
  ]);
}

// `dns` is `HOST:PORT`, `subnet` such as `203.0.113.0/24`. Gives the answer's status, 0 if there is one.
export function ask(dns, name, subnet) {
  const [host, port] = [dns.slice(0, dns.lastIndexOf(":")), Number(dns.slice(dns.lastIndexOf(":") + 1))];
  const [address, length] = subnet.split("/");
  return new Promise((resolve, reject) => {
    const socket = createSocket("udp4");
    const end = (settle, value) => {
      clearTimeout(timer);
      socket.close();
      settle(value);
    };
    const timer = setTimeout(() => end(reject, new Error(`${dns} does not answer`)), 10_000);
    socket.on("error", (error) => end(reject, error));
    socket.on("message", (answer) => end(resolve, (answer[3] ?? 15) & 15));
    socket.send(query(name, [address, Number(length)]), port, host);
  });
}
