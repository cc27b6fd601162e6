// Fill the list of versions from ../versions.js, which the newest build has written; a choice leads
// to the same page of that version. Without that file the list has this version only.
(() => {
  const box = document.querySelector(".versions");
  const list = box.querySelector("select");
  const root = new URL(box.dataset.root || "./", location.href);
  const page = location.href.slice(root.href.length);
  const versions = window.siteVersions || [box.dataset.version];
  list.replaceChildren(
    ...versions.map((name) => {
      const chosen = name === box.dataset.version;
      return new Option(name, name, chosen, chosen);
    }),
  );
  list.addEventListener("change", () => {
    location.href = new URL(`../${list.value}/${page}`, root).href;
  });
})();
