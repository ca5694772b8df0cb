"use strict";
// Shows /openapi.json in Swagger UI, and under `serve --demo` a list of the demo's keys.
// Texts are put in as text, never as markup.

let authorised = null;

const authorise = (ui, line) => {
  if (authorised) ui.authActions.logout([authorised]);
  authorised = line.scheme;
  ui.preauthorizeApiKey(line.scheme, line.key);
  document.getElementById("chosen").textContent = `${line.header}: ${line.key}`;
};

const offerKeys = async (ui) => {
  const answer = await fetch("/docs/keys.json");
  const lines = await answer.json();
  if (!lines.length) return;
  const select = document.getElementById("key");
  for (const [place, line] of lines.entries()) {
    const option = document.createElement("option");
    option.value = String(place);
    option.textContent = `${line.role} (${line.tenant_kind})`;
    select.append(option);
  }
  select.addEventListener("change", () => authorise(ui, lines[Number(select.value)]));
  select.value = String(Math.max(0, lines.findIndex((line) => line.role === "private_reader")));
  document.getElementById("keys").hidden = false;
  authorise(ui, lines[Number(select.value)]);
};

const ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  docExpansion: "list",
  filter: true,
  showExtensions: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  onComplete: () => offerKeys(ui),
});
