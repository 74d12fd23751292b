// Asks for this page again and puts the answer in place: what is open, in focus or scrolled to stays as it is.
"use strict";
const every = Number(document.documentElement.dataset.refresh) * 1000;
const details = () => [...document.querySelectorAll("details")];
const nameOf = (each) => (each.querySelector("summary .key") ?? each.querySelector("summary")).textContent.trim();

async function again() {
  try {
    if (!document.hidden && getSelection().isCollapsed) {  // what somebody copies stays
      const reply = await fetch(location.pathname + location.search, {cache: "no-store", signal: AbortSignal.timeout(every)});
      if (!reply.ok && reply.status !== 404) throw new Error(reply.statusText);
      put(new DOMParser().parseFromString(await reply.text(), "text/html"));
    }
    document.body.classList.remove("old");
  } catch {
    document.body.classList.add("old");
  }
  setTimeout(again, every);
}

function put(made) {
  const style = (from) => from.querySelector("style").textContent;
  if (style(made) !== style(document)) return location.reload();  // the master is of another version now
  const focused = document.activeElement?.getAttribute("href");
  const open = new Map(details().map((each) => [nameOf(each), each.open]));
  document.title = made.title;
  for (const name of ["header", "main"]) document.querySelector(name).replaceWith(made.querySelector(name));
  for (const each of details()) each.open = open.get(nameOf(each)) ?? each.open;
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
}

if (every) setTimeout(again, every);
