// A small tokenization service behind a rate limiter from npm: node node.cjs KIND PORT JSON.
//
// JSON: limit, window_ms, block_ms (0: none), by ("pair", "key" or "ip"), left_out (a path that is
// not limited, empty for none), limited (false: no limiter at all), anything (every operation is
// limited, and not only the creation of tokens).
"use strict";
const { randomUUID } = require("node:crypto");
const [kind, port, text] = process.argv.slice(2);
const given = JSON.parse(text);

function mirrored(value) {
  if (typeof value === "string") return randomUUID();
  if (Array.isArray(value)) return value.map(mirrored);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, mirrored(part)]));
}

function party(address, headers) {
  const key = headers["x-api-key"] || "";
  return { pair: `${address} ${key}`, key, ip: address }[given.by];
}

function isLimited(method, path) {
  const isCreating = method === "POST" && ["/tokenize", "/tokens"].includes(path);
  return given.limited && path !== given.left_out && (given.anything || isCreating);
}

function answer(method, path, body) {
  return method === "POST" && path === "/tokenize" ? mirrored(body) : { id: randomUUID() };
}

function serveExpress(limiter) {
  const express = require("express");
  const app = express();
  app.use((request, response, next) =>
    isLimited(request.method, request.path) ? limiter(request, response, next) : next());
  app.use(express.json({ strict: false }));
  app.use((request, response) => {
    if (!request.headers["x-api-key"]) return response.status(401).json({ title: "no key" });
    return response.json(answer(request.method, request.path, request.body));
  });
  app.listen(Number(port), "127.0.0.1", 1024);
}

const kinds = {
  "express-rate-limit"() {
    const { rateLimit } = require("express-rate-limit");
    serveExpress(rateLimit({
      windowMs: given.window_ms,
      limit: given.limit,
      keyGenerator: (request) => party(request.socket.remoteAddress, request.headers),
      validate: false,
    }));
  },
  "rate-limiter-flexible"() {
    const { RateLimiterMemory } = require("rate-limiter-flexible");
    const limiter = new RateLimiterMemory({
      points: given.limit,
      duration: given.window_ms / 1000,
      blockDuration: given.block_ms / 1000,
    });
    serveExpress((request, response, next) => {
      limiter.consume(party(request.socket.remoteAddress, request.headers))
        .then(() => next(), () => response.status(429).json({ title: "too many requests" }));
    });
  },
  "@fastify/rate-limit"() {
    const fastify = require("fastify")();
    fastify.register(require("@fastify/rate-limit"), {
      max: given.limit,
      timeWindow: given.window_ms,
      keyGenerator: (request) => party(request.socket.remoteAddress, request.headers),
      allowList: (request) => !isLimited(request.method, request.url.split("?")[0]),
    });
    fastify.register(async (service) => {
      service.all("/*", async (request, reply) => {
        if (!request.headers["x-api-key"]) return reply.code(401).send({ title: "no key" });
        return answer(request.method, request.url.split("?")[0], request.body);
      });
    });
    fastify.listen({ port: Number(port), host: "127.0.0.1", backlog: 1024 });
  },
};
kinds[kind]();
