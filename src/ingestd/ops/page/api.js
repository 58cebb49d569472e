// Asking the daemon. Addresses are relative, so the page also works behind a proxy with a path of its own.

export class Refused extends Error {}

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null));
  const address = `api/v1/${path}${query.size ? `?${query}` : ""}`;
  const response = await fetch(address, { headers: { accept: "application/json" }, cache: "no-store" });
  if (response.status === 401) {
    location.reload();
    throw new Refused("the session has ended");
  }
  const document = await response.json();
  if (!response.ok) throw new Refused(document.error ?? response.statusText);
  return document;
}
