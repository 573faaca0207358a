"""German, Spanish and French material of the demo corpus, in the form that ``tickets`` describes.

Intents bear the names of their English counterparts. Every ``{item}`` is a feminine noun that starts with a consonant,
so that articles before it need not change.
"""

SLOTS: dict[str, dict[str, list[str]]] = {
    "de": {
        "item": [
            "Regenjacke",
            "Kaffeemaschine",
            "Schreibtischlampe",
            "Wolldecke",
            "Bluse",
            "Pfanne",
            "Tastatur",
            "Handtasche",
            "Trinkflasche",
            "Wanduhr",
            "Yogamatte",
        ],
        "wear": ["Regenjacke", "Bluse", "Strickjacke", "Jeans", "Daunenweste", "Winterjacke"],
        "gadget": ["Kaffeemaschine", "Schreibtischlampe", "Tastatur", "Smartwatch", "Küchenmaschine"],
        "days": ["vier Tagen", "einer Woche", "8 Tagen", "10 Tagen", "zwei Wochen", "3 Wochen"],
        "amount": ["24,90 €", "39,95 €", "18 Euro", "74 Euro", "112 €"],
        "code": ["HERBST15", "WILLKOMMEN10", "GRATIS24"],
        "size": ["S", "M", "L", "XL"],
    },
    "es": {
        "item": [
            "chaqueta",
            "cafetera",
            "lámpara",
            "manta",
            "blusa",
            "sartén",
            "mochila",
            "tetera",
            "maleta",
            "batidora",
            "falda",
        ],
        "wear": ["chaqueta", "blusa", "falda", "camiseta", "sudadera", "parka"],
        "gadget": ["cafetera", "lámpara", "batidora", "tostadora", "plancha"],
        "days": ["cuatro días", "una semana", "8 días", "diez días", "dos semanas", "3 semanas"],
        "amount": ["24,90 €", "39,95 euros", "18 €", "74 euros", "112 €"],
        "code": ["OTONO15", "HOLA10", "ENVIO24"],
        "size": ["S", "M", "L", "XL"],
    },
    "fr": {
        "item": [
            "veste",
            "cafetière",
            "lampe",
            "couverture",
            "robe",
            "poêle",
            "bouilloire",
            "valise",
            "montre",
            "chemise",
            "jupe",
        ],
        "wear": ["veste", "robe", "chemise", "jupe", "parka", "doudoune"],
        "gadget": ["cafetière", "lampe", "bouilloire", "montre", "perceuse"],
        "days": ["quatre jours", "une semaine", "8 jours", "dix jours", "deux semaines", "3 semaines"],
        "amount": ["24,90 €", "39,95 euros", "18 €", "74 euros", "112 €"],
        "code": ["AUTOMNE15", "BIENVENUE10", "LIVRAISON24"],
        "size": ["S", "M", "L", "XL"],
    },
}

GREETINGS: dict[str, list[str]] = {
    "de": ["Hallo,", "Guten Tag,", "Hi,", "Moin,", "Guten Morgen,", "Liebes Team,"],
    "es": ["Hola,", "Buenos días,", "Buenas tardes,", "Hola, buenas:", "Buenas,"],
    "fr": ["Bonjour,", "Bonsoir,", "Bonjour à vous,", "Rebonjour,"],
}
NAMES: dict[str, list[str]] = {
    "de": ["Petra", "T. Brandt", "Jonas", "Frau Seidel", "Miriam", "Kai", "S. Yilmaz", "Anke"],
    "es": ["Lucía", "Javier", "M. Ortega", "Nuria", "Pablo", "Carmen R.", "Iker"],
    "fr": ["Élodie", "Mathieu", "Mme Garnier", "Karim", "Sophie L.", "Bastien", "Inès"],
}
THANKS: dict[str, list[str]] = {
    "de": [
        "Danke!",
        "Vielen Dank.",
        "Danke im Voraus",
        "LG {name}",
        "Mit freundlichen Grüßen, {name}",
        "Danke schön",
    ],
    "es": ["Gracias.", "Muchas gracias", "Un saludo, {name}", "Saludos", "Gracias de antemano.", "Mil gracias"],
    "fr": ["Merci.", "Merci d'avance", "Merci beaucoup !", "Cordialement, {name}", "Bonne journée", "Cdlt"],
}
ANGER: dict[str, list[str]] = {
    "de": ["Eine Frechheit.", "So geht das nicht.", "Ich bin echt sauer.", "Das ist das zweite Mal!", "Unmöglich."],
    "es": ["Es una vergüenza.", "Estoy muy decepcionada.", "Nadie contesta al teléfono.", "Ya está bien.", "Fatal."],
    "fr": [
        "C'est inadmissible.",
        "Je suis très déçu.",
        "Personne ne répond.",
        "Ras le bol.",
        "C'est la deuxième fois !",
    ],
}
ORDER_NOTES: dict[str, list[str]] = {
    "de": ["Bestellung {no}.", "Bestellnr. {no}", "(Nr. {no})"],
    "es": ["Pedido {no}.", "(pedido {no})", "N.º de pedido {no}"],
    "fr": ["Commande {no}.", "(commande n° {no})", "Réf {no}"],
}

TICKETS_DE: dict[str, dict[str, list[str]]] = {
    "late_delivery": {
        "where_is_it": [
            "Wo bleibt mein Paket?",
            "Wo ist denn meine Bestellung [gerade|] abgeblieben?",
            "Können Sie mir sagen, wo mein Paket [ist|steckt]?",
            "Wann kommt [endlich|] meine Bestellung?",
        ],
        "overdue": [
            "Ich warte seit {days} auf meine [Lieferung|Bestellung].",
            "Meine Bestellung sollte vor {days} da sein, [bisher nichts|es kam noch nichts].",
            "Ich warte [schon|nun] seit {days} auf mein Paket.",
            "Seit {days} überfällig, wo bleibt die Lieferung?",
        ],
        "says_delivered": [
            "Laut Sendungsverfolgung zugestellt, aber [hier ist nichts angekommen|ich habe nichts bekommen].",
            "Angeblich wurde mein Paket zugestellt, ich habe es aber nie erhalten.",
            "Status ist 'zugestellt', nur das Paket fehlt.",
        ],
    },
    "refund_status": {
        "where_refund": [
            "Wann bekomme ich mein Geld zurück?",
            "Die Rückerstattung ist [immer noch nicht|noch nicht] auf meinem Konto.",
            "Ich habe die {item} vor {days} zurückgeschickt und noch kein Geld [bekommen|erhalten].",
            "Ich habe vor {days} die {item} zurückgeschickt, wo bleibt mein Geld?",
            "Vor {days} ging die {item} an Sie zurück, wo bleibt die Erstattung?",
        ],
        "wrong_amount": [
            "Bei der Erstattung fehlen {amount}.",
            "Sie haben mir {amount} zu wenig erstattet.",
            "Mir wurden {amount} zu wenig erstattet.",
            "Die Gutschrift ist um {amount} zu niedrig.",
        ],
    },
    "damaged_on_arrival": {
        "broken": [
            "Die {item} ist kaputt [angekommen|hier angekommen].",
            "Beim Auspacken war die {item} [schon kaputt|beschädigt].",
            "Habe heute eine defekte {item} erhalten.",
            "Die {item} war bei der Lieferung [kaputt|beschädigt].",
            "Leider kam die {item} beschädigt bei mir an.",
        ],
        "box_crushed": [
            "Der Karton war völlig zerdrückt.",
            "Das Paket kam total [eingedrückt|zerbeult] an.",
            "Der Karton ist [völlig|total] zerdrückt bei mir angekommen.",
        ],
    },
    "return_label": {
        "need_label": [
            "Ich brauche [bitte|] ein Rücksendeetikett.",
            "Im Paket lag kein Retourenschein.",
            "Wo finde ich das Retourenlabel[ für meine Bestellung|]?",
            "Ich will die {item} zurückschicken, bitte schicken Sie mir ein Label.",
            "Ich möchte die {item} zurückschicken und brauche ein Label.",
        ],
        "no_printer": [
            "Ich habe keinen Drucker, wie kann ich [trotzdem|] zurückschicken?",
            "Geht die Rücksendung auch ohne ausgedrucktes Etikett?",
        ],
    },
    "wrong_item": {
        "got_something_else": [
            "Sie haben mir [den falschen Artikel|das Falsche] geschickt.",
            "Das ist nicht das, was ich bestellt habe.",
            "Falscher Artikel im Paket!",
            "Sie haben mir statt der {item} etwas ganz anderes geschickt.",
            "Statt der {item} war etwas ganz anderes im Paket.",
            "Ich habe eine {item} bestellt und etwas völlig anderes bekommen.",
        ],
    },
    "cancel_order": {
        "cancel": [
            "Ich möchte meine Bestellung stornieren.",
            "Bitte [umgehend|] stornieren, ich brauche es nicht mehr.",
            "Kann ich die Bestellung noch [stornieren|zurückziehen]?",
            "Bitte Bestellung {no} stornieren.",
            "Ich will die Bestellung {no} [doch nicht mehr, bitte|gerne] stornieren.",
        ],
        "confirm_cancel": [
            "Ist die Stornierung von {no} durch? Es kam keine Bestätigung.",
            "Habe {no} storniert, aber keine Bestätigung bekommen.",
        ],
    },
    "login_password": {
        "forgot": [
            "Ich habe mein Passwort vergessen.",
            "Wie kann ich mein Passwort [zurücksetzen|ändern]?",
            "Passwort vergessen, bitte um Hilfe",
        ],
        "cant_login": [
            "Ich komme nicht mehr in mein Konto.",
            "Die Anmeldung funktioniert [nicht|seit gestern nicht].",
            "Ich kann mich nicht [einloggen|anmelden].",
        ],
        "no_reset_mail": [
            "Die Mail zum Zurücksetzen des Passworts kommt nicht an.",
            "Ich bekomme keine E-Mail mit dem Link für ein neues Passwort.",
        ],
    },
    "promo_code": {
        "not_working": [
            "Mein Gutscheincode [funktioniert nicht|geht nicht].",
            "Der Code {code} wird nicht angenommen.",
            "Der Gutscheincode {code} wird nicht [angenommen|akzeptiert].",
            "Der Code {code} geht nicht.",
            "Beim Einlösen von {code} kommt eine Fehlermeldung.",
            "Warum ist der Gutschein {code} ungültig?",
        ],
        "forgot_to_apply": [
            "Ich habe vergessen, den Code {code} einzugeben. [Geht das noch nachträglich?|]",
            "Kann {code} nachträglich abgezogen werden? Hab ihn vergessen.",
        ],
    },
    "payment_declined": {
        "declined": [
            "Meine Zahlung wurde abgelehnt.",
            "Warum wird meine Karte [nicht akzeptiert|abgelehnt]?",
            "Die Zahlung schlägt [immer wieder|ständig] fehl.",
        ],
        "method_available": [
            "Kann ich auch auf Rechnung [zahlen|kaufen]?",
            "Bieten Sie Kauf auf Rechnung an?",
        ],
    },
    "change_address": {
        "change": [
            "Kann ich die Lieferadresse noch ändern?",
            "Bitte Bestellung {no} an eine andere Adresse [schicken|liefern].",
            "Bitte die Lieferadresse von {no} ändern.",
            "Die Lieferadresse von {no} muss geändert werden.",
        ],
        "typo": [
            "In meiner Adresse ist die Hausnummer falsch.",
            "Ich habe mich bei der Hausnummer vertippt[, bitte korrigieren|].",
        ],
    },
    "size_exchange": {
        "too_small": [
            "Die {wear} ist zu klein, kann ich sie in {size} bekommen?",
            "Ich möchte die {wear} gegen Größe {size} tauschen, sie ist zu eng.",
            "Die {wear} ist zu eng, kann ich sie gegen Größe {size} tauschen?",
            "{wear} passt nicht, bitte Umtausch in {size}",
        ],
    },
    "warranty_repair": {
        "stopped_working": [
            "Meine {gadget} ist nach einem halben Jahr kaputt, ist das ein Garantiefall?",
            "Die {gadget} geht nach sechs Monaten nicht mehr. Habe ich noch Garantie?",
        ],
        "repair": [
            "Kann man die {gadget} bei Ihnen reparieren lassen?",
            "Reparieren Sie auch eine defekte {gadget}?",
        ],
    },
    "double_charge": {
        "charged_twice": [
            "Mir wurde der Betrag doppelt abgebucht.",
            "Sie haben zweimal von meinem Konto abgebucht.",
            "{amount} wurden zweimal abgebucht.",
            "Auf meinem Konto sind zwei Abbuchungen über {amount}, ich habe nur einmal bestellt.",
        ],
    },
    "invoice": {
        "need_invoice": [
            "Ich brauche [noch|] eine Rechnung.",
            "Können Sie mir die Rechnung [per Mail|als PDF] schicken?",
            "Bitte die Rechnung zu {no} schicken.",
            "Für {no} fehlt mir noch die Rechnung.",
        ],
    },
    "stock_availability": {
        "back_in_stock": [
            "Wann ist die {item} wieder [lieferbar|verfügbar]?",
            "Die {item} ist ausverkauft, kommt sie nochmal rein?",
        ],
    },
    "newsletter_unsubscribe": {
        "unsubscribe": [
            "Bitte keinen Newsletter mehr.",
            "Wie kann ich den Newsletter [abbestellen|kündigen]?",
            "Nehmen Sie mich [bitte|sofort] aus dem Verteiler.",
        ],
    },
}

TICKETS_ES: dict[str, dict[str, list[str]]] = {
    "late_delivery": {
        "where_is_it": [
            "¿Dónde está mi pedido?",
            "¿Me podéis decir dónde está mi paquete?",
            "Quiero saber por dónde anda mi [paquete|pedido].",
            "¿Cuándo llega [por fin|] mi pedido?",
        ],
        "overdue": [
            "Llevo {days} esperando mi [paquete|pedido].",
            "Hace {days} que tenía que haber llegado mi pedido[ y nada|].",
            "Llevo {days} esperando y mi [pedido|paquete] no llega.",
            "Mi pedido lleva {days} de retraso.",
        ],
        "says_delivered": [
            "Pone entregado, pero [no he recibido nada|aquí no ha llegado nada].",
            "Según el seguimiento el paquete está entregado y yo no lo tengo.",
            "Me sale como entregado y no me ha llegado.",
        ],
    },
    "refund_status": {
        "where_refund": [
            "¿Cuándo me devolvéis el dinero?",
            "Todavía no he recibido el reembolso.",
            "Devolví la {item} hace {days} y sigo sin [el dinero|reembolso].",
            "Devolví la {item} hace {days}, ¿cuándo me devolvéis el dinero?",
            "Hace {days} que devolví la {item} y no me habéis hecho el abono.",
        ],
        "wrong_amount": [
            "En el reembolso faltan {amount}.",
            "Me habéis devuelto {amount} de menos.",
        ],
    },
    "damaged_on_arrival": {
        "broken": [
            "La {item} ha llegado rota.",
            "La {item} que me habéis enviado está rota.",
            "Al abrir la caja, la {item} estaba [rota|dañada].",
            "Acabo de recibir la {item} y está rota.",
        ],
        "box_crushed": [
            "La caja venía [totalmente|] aplastada.",
            "El paquete llegó con la caja [toda|completamente] aplastada.",
        ],
    },
    "return_label": {
        "need_label": [
            "Necesito una etiqueta de devolución.",
            "En el paquete no venía la etiqueta para devolverlo.",
            "¿Dónde descargo la etiqueta de devolución?",
            "Quiero devolver la {item}, ¿me mandáis la etiqueta?",
            "Me hace falta una etiqueta para devolver la {item}.",
        ],
        "cost": [
            "¿La devolución es gratis?",
            "¿Tengo que pagar los gastos de devolución?",
        ],
    },
    "wrong_item": {
        "got_something_else": [
            "Me habéis mandado un producto equivocado.",
            "Esto no es lo que pedí.",
            "Pedí una {item} y me ha llegado otra cosa.",
            "En vez de la {item} venía un producto distinto.",
        ],
    },
    "cancel_order": {
        "cancel": [
            "Quiero cancelar mi pedido.",
            "¿Todavía puedo [cancelar|anular] el pedido?",
            "Cancelad el pedido {no}, por favor.",
            "Me gustaría anular el pedido {no}.",
        ],
        "ordered_by_mistake": [
            "Compré una {item} por error, ¿podéis cancelar el pedido?",
            "He pedido una {item} por error, cancelad el pedido.",
        ],
    },
    "login_password": {
        "forgot": [
            "He olvidado mi contraseña.",
            "¿Cómo [cambio|recupero] la contraseña?",
            "no me acuerdo de la contraseña",
        ],
        "cant_login": [
            "No puedo entrar en mi cuenta.",
            "La web no me deja iniciar sesión[ desde ayer|].",
        ],
    },
    "promo_code": {
        "not_working": [
            "El código de descuento no funciona.",
            "El código {code} me da error.",
            "El cupón {code} no funciona.",
            "El código {code} no es válido, me da error.",
            "Pongo {code} y dice que no es válido.",
            "No me deja usar el cupón {code}.",
        ],
    },
    "payment_declined": {
        "declined": [
            "Me rechaza el pago.",
            "¿Por qué no acepta mi tarjeta?",
            "Intento pagar y [me rechaza la tarjeta|siempre da error].",
        ],
        "method_available": [
            "¿Se puede pagar a plazos?",
            "¿Aceptáis el pago [en varias cuotas|fraccionado]?",
        ],
    },
    "change_address": {
        "change": [
            "¿Puedo cambiar la dirección de entrega?",
            "Necesito que el pedido {no} vaya a otra dirección.",
            "Quiero cambiar la dirección de envío del pedido {no}.",
        ],
        "moved": [
            "Me he mudado y el pedido va a mi casa antigua.",
            "He cambiado de piso, [enviadlo|mandadlo] a la nueva dirección por favor.",
        ],
    },
    "size_exchange": {
        "too_small": [
            "La {wear} me queda pequeña, ¿la puedo cambiar por una {size}?",
            "Quiero cambiar la {wear} por la talla {size}, me aprieta.",
            "Necesito la {wear} en {size}, esta me va justa.",
        ],
    },
    "warranty_repair": {
        "stopped_working": [
            "La {gadget} dejó de funcionar a los seis meses, ¿lo cubre la garantía?",
            "Compré una {gadget} hace medio año y ya no va. ¿Tiene garantía?",
        ],
        "how_long_warranty": [
            "¿Cuántos años de garantía tiene la {gadget}?",
            "¿Hasta cuándo está en garantía la {gadget}?",
        ],
    },
    "double_charge": {
        "charged_twice": [
            "Me habéis cobrado dos veces.",
            "Tengo el mismo cargo dos veces en la tarjeta.",
            "Me aparecen dos cargos de {amount} y solo hice un pedido.",
            "Me habéis cobrado {amount} por duplicado.",
        ],
    },
    "invoice": {
        "need_invoice": [
            "Necesito la factura de mi compra.",
            "¿Me podéis enviar la factura [en PDF|por correo]?",
            "No encuentro la factura del pedido {no}.",
            "Enviadme la factura del pedido {no}, por favor.",
        ],
    },
    "stock_availability": {
        "back_in_stock": [
            "¿Cuándo volverá a haber la {item}?",
            "La {item} está agotada, ¿la vais a reponer?",
        ],
    },
    "newsletter_unsubscribe": {
        "unsubscribe": [
            "Quiero darme de baja del boletín.",
            "Dejad de mandarme [publicidad|correos], por favor.",
            "¿Cómo me doy de baja de la newsletter?",
        ],
    },
}

TICKETS_FR: dict[str, dict[str, list[str]]] = {
    "late_delivery": {
        "where_is_it": [
            "Où est mon colis ?",
            "Pouvez-vous me dire où se trouve ma commande ?",
            "J'aimerais savoir où en est mon colis.",
            "Quand est-ce que ma commande va [enfin|] arriver ?",
        ],
        "overdue": [
            "J'attends mon colis depuis {days}.",
            "J'attends ma commande depuis {days}.",
            "Ma commande a {days} de retard.",
            "Ça fait {days} que je devrais avoir reçu ma commande.",
        ],
        "says_delivered": [
            "Le suivi indique livré, mais je n'ai rien reçu.",
            "Colis soi-disant livré, [rien dans la boîte aux lettres|je n'ai rien eu].",
            "C'est marqué livré alors que je n'ai [rien reçu|pas eu mon colis].",
        ],
    },
    "refund_status": {
        "where_refund": [
            "Quand serai-je remboursé ?",
            "Je n'ai toujours pas [reçu|eu] mon remboursement.",
            "J'ai renvoyé la {item} il y a {days} et toujours pas de remboursement.",
            "J'ai retourné la {item} il y a {days}, je ne suis toujours pas remboursé.",
            "Retour de la {item} fait il y a {days}, où est mon argent ?",
        ],
        "wrong_amount": [
            "Il manque {amount} sur mon remboursement.",
            "Vous m'avez remboursé {amount} de moins que prévu.",
        ],
    },
    "damaged_on_arrival": {
        "broken": [
            "La {item} est arrivée cassée.",
            "J'ai ouvert le carton et la {item} était [cassée|abîmée].",
            "J'ai reçu la {item} cassée.",
            "Je viens de recevoir une {item} abîmée.",
        ],
        "box_crushed": [
            "Le carton était complètement écrasé.",
            "Mon colis est arrivé [tout écrasé|complètement écrasé].",
        ],
    },
    "return_label": {
        "need_label": [
            "Il me faut une étiquette de retour.",
            "Je ne trouve pas l'étiquette de retour[ dans mon colis|].",
            "Comment obtenir un bon de retour ?",
            "Je voudrais renvoyer la {item}, pouvez-vous m'envoyer l'étiquette ?",
            "J'ai besoin d'une étiquette pour retourner la {item}.",
        ],
        "no_printer": [
            "Je n'ai pas d'imprimante, comment faire le retour ?",
            "Peut-on faire un retour sans imprimer l'étiquette ?",
        ],
    },
    "wrong_item": {
        "got_something_else": [
            "Vous m'avez envoyé le mauvais article.",
            "Ce n'est pas du tout ce que j'ai commandé.",
            "J'ai commandé une {item} et j'ai reçu autre chose.",
            "J'ai reçu un autre article à la place de la {item}.",
            "À la place de la {item}, il y avait un autre article.",
        ],
    },
    "cancel_order": {
        "cancel": [
            "Je souhaite annuler ma commande.",
            "Est-ce que je peux encore annuler [ma commande|l'achat] ?",
            "Merci d'annuler la commande {no}.",
            "Je voudrais annuler ma commande {no}.",
        ],
        "ordered_by_mistake": [
            "J'ai commandé la {item} par erreur, merci d'annuler.",
            "Fausse manip, je ne voulais pas acheter la {item}. Annulez svp.",
        ],
    },
    "login_password": {
        "forgot": [
            "J'ai oublié mon mot de passe.",
            "Comment réinitialiser [mon|le] mot de passe ?",
            "mot de passe perdu, que faire",
        ],
        "cant_login": [
            "Je n'arrive pas à me connecter[ à mon compte|].",
            "Impossible d'accéder à mon compte[ depuis hier|].",
        ],
    },
    "promo_code": {
        "not_working": [
            "Mon code promo ne marche pas.",
            "Le code {code} ne fonctionne pas.",
            "Le code promo {code} ne marche pas.",
            "Quand je saisis {code}, ça affiche code invalide.",
            "Pourquoi le code {code} est-il refusé ?",
        ],
    },
    "payment_declined": {
        "declined": [
            "Mon paiement est refusé.",
            "Pourquoi ma carte [est-elle|est toujours] refusée ?",
            "Le paiement [échoue à chaque fois|ne passe pas].",
        ],
        "method_available": [
            "Peut-on payer en plusieurs fois ?",
            "Proposez-vous le paiement en [trois|plusieurs] fois ?",
        ],
    },
    "change_address": {
        "change": [
            "Puis-je modifier l'adresse de livraison ?",
            "La commande {no} doit être livrée à une autre adresse.",
            "Je dois changer l'adresse de livraison de la commande {no}.",
        ],
        "moved": [
            "J'ai déménagé, merci de livrer à ma nouvelle adresse.",
            "Le colis part à mon ancienne adresse, je viens de déménager.",
        ],
    },
    "size_exchange": {
        "too_small": [
            "La {wear} est trop petite, puis-je l'échanger contre du {size} ?",
            "Je voudrais échanger la {wear} pour une taille {size}, elle me serre.",
            "La {wear} ne me va pas, il me faudrait du {size}.",
        ],
    },
    "warranty_repair": {
        "stopped_working": [
            "Ma {gadget} est déjà fichue au bout de six mois, la garantie marche ?",
            "Après six mois la {gadget} est hors service. Est-elle sous garantie ?",
        ],
        "repair": [
            "Est-ce que vous réparez la {gadget} ?",
            "Où envoyer ma {gadget} en réparation ?",
        ],
    },
    "double_charge": {
        "charged_twice": [
            "J'ai été débité deux fois.",
            "Vous avez prélevé deux fois la même commande.",
            "{amount} prélevés deux fois sur mon compte !",
            "Je vois deux débits de {amount} pour une seule commande.",
        ],
    },
    "invoice": {
        "need_invoice": [
            "J'ai besoin d'une facture.",
            "Pouvez-vous m'envoyer la facture [en PDF|par mail] ?",
            "Il me manque la facture de la commande {no}.",
            "Merci de m'envoyer la facture de la commande {no}.",
        ],
    },
    "stock_availability": {
        "back_in_stock": [
            "Quand la {item} sera-t-elle de nouveau [disponible|en stock] ?",
            "La {item} est en rupture, en aurez-vous bientôt ?",
        ],
    },
    "newsletter_unsubscribe": {
        "unsubscribe": [
            "Je veux me désabonner de la newsletter.",
            "Arrêtez de m'envoyer [des pubs|vos mails] svp.",
            "Comment se désinscrire de la newsletter ?",
        ],
    },
}

TICKETS: dict[str, dict[str, dict[str, list[str]]]] = {"de": TICKETS_DE, "es": TICKETS_ES, "fr": TICKETS_FR}

OFF_TOPIC: dict[str, list[str]] = {
    "de": [
        "Suchen Sie noch Aushilfen für das Lager?",
        "Kann man die Wolldecke in der Maschine waschen?",
        "hat sich erledigt, danke",
    ],
    "es": [
        "¿Buscáis personal para la tienda de Sevilla?",
        "¿La tetera se puede meter en el lavavajillas?",
        "Perdón, me he equivocado de chat.",
    ],
    "fr": [
        "Bravo à toute l'équipe, accueil au top au téléphone !",
        "Vos tissus sont-ils fabriqués en Europe ?",
        "Recrutez-vous des saisonniers pour Noël ?",
    ],
}
